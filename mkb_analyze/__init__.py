"""Whether a kernel agent's note helps or harms the next attempt, why, and which sentence is to blame."""
