"""What is run: find it, import it, record what it does, keep it in a process of its own."""
