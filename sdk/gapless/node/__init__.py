"""The process that hosts roles: one pure machine, and the driver that gives it a loop, a disk and links."""
