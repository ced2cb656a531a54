"""How a run advances: the host loop, compiled steps, integration of flows."""
