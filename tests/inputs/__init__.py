"""What people and programs hand over, whatever it is: it is refused in words, or kept and shown."""
