"""Adapters to other RL libraries: our tasks as their environments, their networks as our policy graphs."""
