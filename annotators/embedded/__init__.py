"""The offline rater: features, training, the model file and the plain rules."""
