"""Designed controllers for poles, and the RealAIGym leaderboards of the double pendulum.

Copy this folder next to your program, or put `examples` on `PYTHONPATH`. LQR and time-varying LQR need the extra
`train`; `realaigym.swing_up` and `realaigym.double_pendulum` optimise trajectories with CasADi, which the extra
`design` adds, and `realaigym.trial` plays an exported policy by the rules of the leaderboards.
"""
