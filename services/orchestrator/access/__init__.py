"""What stands before the API's routes: who asks, what they may do, and how much at once."""
