"""A person's part: what people are shown, what they answered, and what is settled by it."""
