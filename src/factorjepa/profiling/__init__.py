"""What a method costs: latency, memory, training rate and its share of the hardware's arithmetic (Panel E)."""
