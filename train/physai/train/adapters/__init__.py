"""Our tasks for other people's learners; what they train comes back as one of our policy graphs."""
