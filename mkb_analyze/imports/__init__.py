"""Studies made elsewhere, read into the study format."""
