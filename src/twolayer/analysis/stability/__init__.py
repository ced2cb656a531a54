"""Where runs stall and what leads on: fixed points, their growth rates, plateaus, the
critical learning rate.
"""
