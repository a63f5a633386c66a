"""What lies under pubends whose log is not the volume's, one package each."""
