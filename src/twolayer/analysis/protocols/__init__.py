"""The best way to run: learning rates, batches and weight decay found by gradients
through the dynamics.
"""
