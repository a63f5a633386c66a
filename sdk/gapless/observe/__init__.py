"""What an operator's tools expect to find: figures and health over HTTP."""
