"""The routers that ship with gapless: pure cores behind the routing seam."""
