"""Closed-loop test of a twin: the policy that ran on the robot, played in the twin from the same starts."""
