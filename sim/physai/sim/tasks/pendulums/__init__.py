"""Swing-up tasks of cart-poles and pendulums."""
