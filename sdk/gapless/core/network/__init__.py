"""What brokers and routers say to each other: the routing seam, its frames, interest, and release minima."""
