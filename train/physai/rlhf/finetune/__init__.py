"""Fine-tuning of a policy by a reward model, with a KL penalty to its reference."""
