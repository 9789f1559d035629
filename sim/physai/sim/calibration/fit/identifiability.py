"""What recordings say about parameters: which they constrain, and how sure the fitted values are.

Everything here is in prior units: a parameter's distance from its prior in the prior's standard deviations. Residuals
count once per window and joint, in units of their own spread, however many samples a window has: the samples of a
window share one model error and one error of the initial state, and are nowhere near independent.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

SHRINKAGE = 0.5
"""A parameter counts as identified if the recordings at least halve its prior standard deviation."""
MEMORY_S = 1.0
"""Windows of one recording closer in time than this may have correlated errors."""


@dataclass(frozen=True)
class Linearisation:
    """Residuals of all windows and their derivatives at one point; W windows, S residuals each, P parameters."""

    residual: Array
    """Shape (W, S), in units of each joint's spread over the square root of the samples per window."""
    jacobian: Array
    """By parameters in prior units, shape (W, S, P)."""
    log_index: Indices
    start_s: Array

    @property
    def information(self) -> Array:
        """J'·J over all windows, shape (P, P)."""
        flat = self.jacobian.reshape(-1, self.jacobian.shape[-1])
        return flat.T @ flat


def identified(information: Array) -> Indices:
    """Parameters that the recordings constrain, given that the others are at their priors; ascending.

    Backward elimination: while the posterior (J'·J + 1)^-1 of the remaining parameters leaves one of them more than
    `SHRINKAGE` of its prior standard deviation, the worst of them goes back to its prior. Of parameters that only
    matter together (the masses of links that turn about one axis, a link's inertia and its rotor's) this leaves as
    many as the recordings can tell apart, and returns those known best beforehand to their priors.
    """
    chosen = np.arange(len(information))
    while len(chosen):
        posterior = np.linalg.inv(information[np.ix_(chosen, chosen)] + np.eye(len(chosen)))
        spread = np.sqrt(np.diag(posterior))
        worst = int(np.argmax(spread))
        if spread[worst] <= SHRINKAGE:
            break
        chosen = np.delete(chosen, worst)
    return chosen


def covariance(linear: Linearisation, chosen: Indices) -> Array:
    """Covariance of all parameters in prior units, shape (P, P).

    The identified parameters were fitted to recordings and prior together, so their error is A·g + A·d: g the windows'
    gradients by chance, d the distance of the truth from the prior, A = (H + 1)^-1, H = J'·J. Their covariance is
    A·(B + 1)·A. Where the recordings say much it is the cluster-robust ("sandwich") H^-1·B·H^-1 (White, Econometrica
    48, 1980; Liang and Zeger, Biometrika 73, 1986), where they say nothing the prior's.

    B is the covariance of the gradients with windows as clusters, products of windows of one recording less than
    `MEMORY_S` apart included with falling weight (Newey and West, Econometrica 55, 1987), enlarged where recordings
    have few stretches of that length (`_few`). The textbook sigma²·H^-1 takes residuals for independent; a model
    error makes all samples of a window, and neighbouring windows, err together, and intervals from it are several times
    too narrow. A sandwich of whole recordings would need many more recordings than parameters.

    Unidentified parameters have their prior variance. An error of theirs would have moved the identified ones by
    -(H_II + 1)^-1·H_IU per unit; that enters as cross-covariance, so that draws keep what the recordings do say of both
    together, such as a product of mass and lever.
    """
    information = linear.information
    others = np.setdiff1d(np.arange(len(information)), chosen)
    result = np.eye(len(information))
    if not len(chosen):
        return result
    held = np.linalg.inv(information[np.ix_(chosen, chosen)] + np.eye(len(chosen)))
    count = len(linear.residual)
    gradient = _gradient_covariance(linear, chosen) * _few(linear) ** 2 * count / max(1, count - len(chosen))
    fitted = held @ (gradient + np.eye(len(chosen))) @ held
    pull = -held @ information[np.ix_(chosen, others)]
    result[np.ix_(chosen, chosen)] = fitted + pull @ pull.T
    result[np.ix_(chosen, others)] = pull
    result[np.ix_(others, chosen)] = pull.T
    return 0.5 * (result + result.T)


def _gradient_covariance(linear: Linearisation, chosen: Indices) -> Array:
    """B of the sandwich: sum over pairs of windows of weight times gradient times gradient'."""
    gradients = np.einsum("wsp,ws->wp", linear.jacobian[:, :, chosen], linear.residual)
    apart = np.abs(linear.start_s[:, None] - linear.start_s[None])
    weights = np.maximum(0.0, 1.0 - apart / MEMORY_S)
    weights[linear.log_index[:, None] != linear.log_index[None]] = 0.0
    return gradients.T @ weights @ gradients


def _few(linear: Linearisation) -> float:
    """Factor by which intervals widen because B is estimated from a few stretches of `MEMORY_S` only.

    The 97.5 % point of the statistic divided by the normal one, with Bartlett's weights: Kiefer and Vogelsang,
    Econometric Theory 21 (2005), table 1; b is the memory's share of all that was recorded.
    """
    spans_s = [float(np.ptp(linear.start_s[linear.log_index == log])) for log in np.unique(linear.log_index)]
    share = 1.0 / sum(max(1.0, span_s / MEMORY_S) for span_s in spans_s)
    return (1.9600 + 2.9694 * share + 0.4160 * share**2 - 0.5324 * share**3) / 1.9600
