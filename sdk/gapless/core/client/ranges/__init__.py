"""Durable subscriptions whose position the application keeps itself: `requests` about them, and `reading` a range."""
