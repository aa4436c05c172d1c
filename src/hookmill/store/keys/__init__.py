"""Master keys: how they seal secrets, where they are kept, which ones the database uses, and how they are rotated."""
