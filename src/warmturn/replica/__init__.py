"""What runs next on this one replica: admit, plan prefill and decode, complete."""
