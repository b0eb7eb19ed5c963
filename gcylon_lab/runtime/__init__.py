"""What a rank is made of: devices, transport, budget, and the context that holds them."""
