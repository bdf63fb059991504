"""What the ops of each dialect mean in numpy."""
