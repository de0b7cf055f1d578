"""What raw columns hold, found and said: numbers, categories, orders, dates, and what is left out."""
