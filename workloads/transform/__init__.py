"""Changes to a whole trace; each gives a new Trace and says in its warnings what it did."""
