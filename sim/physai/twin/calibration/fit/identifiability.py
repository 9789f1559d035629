"""Identifiability: which parameters the recordings constrain, and the covariance of the fitted values.

All parameters are in prior units: the distance from the prior in the prior's standard deviations. Residuals count once
per window and joint, in units of their spread, regardless of the number of samples: samples of a window share one model
error and one initial state error, so they are far from independent.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

SHRINKAGE = 0.5
"""A parameter counts as identified if the recordings at least halve its prior standard deviation."""
MODEL_WINDOWS = 5.0
"""Number of independent windows that the recordings count as where the model, not noise, causes the errors. Chosen on
random arms with a cable, drag or Stribeck friction that the model lacks; see docs/notes/calibration.md for what their
intervals contain."""
MEMORY_S = 1.0
"""Time over which errors of windows of one recording may be correlated [s]."""


@dataclass(frozen=True)
class Linearisation:
    """Residuals of all windows and their derivatives at one point; W windows, S residuals each, P parameters."""

    residual: Array
    """Shape (W, S), in units of each joint's spread over the square root of the samples per window."""
    jacobian: Array
    """Derivatives by parameters in prior units, shape (W, S, P)."""
    log_index: Indices
    start_s: Array
    shared: Array | None = None
    """Variance of the gradient that the offsets of the recordings cause, shape (P, P), see `RandomEffects.shared`; None
    for none."""

    @property
    def information(self) -> Array:
        """J'·J over all windows, shape (P, P)."""
        flat = self.jacobian.reshape(-1, self.jacobian.shape[-1])
        return flat.T @ flat


def identified(information: Array) -> Indices:
    """Return the parameters that the recordings constrain while the others are at their priors, ascending.

    Backward elimination: while the posterior (J'·J + 1)^-1 of the remaining parameters leaves any of them more than
    `SHRINKAGE` of its prior standard deviation, the worst one is fixed at its prior.
    """
    # Of parameters with a joint effect (the masses of links about one axis, the inertias of a link and its rotor) this
    # keeps as many as the recordings can distinguish, and fixes those with the tightest priors.
    chosen = np.arange(len(information))
    while len(chosen):
        posterior = np.linalg.inv(information[np.ix_(chosen, chosen)] + np.eye(len(chosen)))
        spread = np.sqrt(np.diag(posterior))
        worst = int(np.argmax(spread))
        if spread[worst] <= SHRINKAGE:
            break
        chosen = np.delete(chosen, worst)
    return chosen


def covariance(linear: Linearisation, chosen: Indices, misfit: float = 0.0) -> Array:
    """Return the covariance of all parameters in prior units, shape (P, P): cluster-robust, with windows as clusters.

    Parameters that are not among the chosen have their prior variance.

    Args:
        linear: the linearised errors.
        chosen: parameters that were fitted.
        misfit: share of the errors' variance that noise of the sensors does not explain.
    """
    information = linear.information
    others = np.setdiff1d(np.arange(len(information)), chosen)
    result = np.eye(len(information))
    if not len(chosen):
        return result
    # The chosen parameters are fitted to recordings and prior together, so their error is A·g + A·d with the random
    # gradients g of the windows, the distance d of the truth from the prior, A = (H + 1)^-1 and H = J'·J. Their
    # covariance is A·(B + 1)·A. It approaches the "sandwich" H^-1·B·H^-1 (White, Econometrica 48, 1980; Liang and
    # Zeger, Biometrika 73, 1986) for informative recordings, and the prior's for uninformative ones.
    held = np.linalg.inv(information[np.ix_(chosen, chosen)] + np.eye(len(chosen)))
    count = len(linear.residual)
    gradient = (
        _gradient_covariance(linear, chosen) * _small_sample_factor(linear) ** 2 * count / max(1, count - len(chosen))
    )
    # Errors of the model repeat in every recording: they do not scatter about the fit, which absorbs them, and more
    # recordings do not average them out. A likelihood with a bounded number of windows allows for a model that is only
    # near the right one (Miller and Dunson, Journal of the American Statistical Association 114, 2019).
    gradient += misfit * count / MODEL_WINDOWS * information[np.ix_(chosen, chosen)]
    # An offset moves all windows of its recording alike, so the scatter between windows does not show it. Like the
    # parameters' distances from their priors, the offsets' are draws of known size.
    if linear.shared is not None:
        gradient += linear.shared[np.ix_(chosen, chosen)]
    fitted = held @ (gradient + np.eye(len(chosen))) @ held
    # An error in another parameter would have moved the chosen ones by this much per unit. As cross-covariance it makes
    # draws preserve combinations that the recordings determine, such as a product of mass and lever arm.
    pull = -held @ information[np.ix_(chosen, others)]
    result[np.ix_(chosen, chosen)] = fitted + pull @ pull.T
    result[np.ix_(chosen, others)] = pull
    result[np.ix_(others, chosen)] = pull.T
    # Rounding leaves the two triangles slightly different.
    return 0.5 * (result + result.T)


def _gradient_covariance(linear: Linearisation, chosen: Indices) -> Array:
    """Return B of the sandwich: the weighted sum of gradient·gradient' over pairs of windows."""
    # The textbook sigma²·H^-1 assumes independent residuals. A model error correlates all samples of a window and
    # neighbouring windows, so its intervals would be several times too narrow. Whole recordings as clusters would need
    # many more recordings than parameters. So products of windows of one recording count with a weight that falls to 0
    # over `MEMORY_S` (Newey and West, Econometrica 55, 1987).
    gradients = np.einsum("wsp,ws->wp", linear.jacobian[:, :, chosen], linear.residual)
    apart = np.abs(linear.start_s[:, None] - linear.start_s[None])
    weights = np.maximum(0.0, 1.0 - apart / MEMORY_S)
    weights[linear.log_index[:, None] != linear.log_index[None]] = 0.0
    return gradients.T @ weights @ gradients


def _small_sample_factor(linear: Linearisation) -> float:
    """Return the factor that widens intervals because B is estimated from few stretches of `MEMORY_S`."""
    spans_s = [float(np.ptp(linear.start_s[linear.log_index == log])) for log in np.unique(linear.log_index)]
    share = 1.0 / sum(max(1.0, span_s / MEMORY_S) for span_s in spans_s)
    # The 97.5 % critical value divided by the normal one, with Bartlett weights: Kiefer and Vogelsang, Econometric
    # Theory 21 (2005), table 1; their b is `MEMORY_S` as a share of the recorded time.
    return (1.9600 + 2.9694 * share + 0.4160 * share**2 - 0.5324 * share**3) / 1.9600
