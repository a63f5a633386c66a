"""The JMS-style profile: blocking, with the names and rules of Jakarta Messaging 3.1."""
