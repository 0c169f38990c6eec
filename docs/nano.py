"""The method of mixtune in one file: predict for one small dataset with the help of others.

    prediction = predict(X, y, sources, X_new)    # sources: a list of (X, y)

It has the steps of the package and none of its care: no sample weights, no classes, no streams, no checks.
"""

import numpy as np
from scipy.optimize import minimize, nnls

STRENGTHS = (0.25, 1.0, 4.0, 32.0)
RIDGES = (1e-4, 1e-2, 0.1, 1.0, 10.0)
FREE = 100.0


def predict(X, y, sources, X_new, seed=0):
    """Predictions for new rows of the dataset (X, y)."""
    rng = np.random.default_rng(seed)
    units = input_units(np.vstack([X, *(rows for rows, _ in sources)]))
    signs = common_signs([units(rows) for rows, _ in sources], [targets for _, targets in sources])
    domains = [(X, y)]
    for sign, (rows, targets) in zip(signs, sources):
        domains.append((rows, targets.mean() + sign * (targets - targets.mean())))
    level = np.median([targets.mean() for _, targets in domains])
    unit = np.exp(np.average([np.log(v.std()) for _, v in domains], weights=[len(v) for _, v in domains]))
    order = [rng.permutation(len(targets)) for _, targets in domains]
    domains = [(units(rows[i]), (targets[i] - level) / unit) for (rows, targets), i in zip(domains, order)]
    kernel = learn_kernel(domains, rng)
    landmarks = choose_landmarks(domains, rng)
    features = shared_features(kernel, landmarks)
    evidence = [source_evidence(kernel, features, *domain) for domain in domains[1:]]
    focal, targets = domains[0]
    predictions, left_out = candidates(kernel, features, evidence, focal, targets, units(X_new))
    own = np.arange(len(left_out)) >= 4 * len(STRENGTHS) if sources else np.full(len(left_out), True)
    chosen = chosen_tasks(domains, rng)
    tasks = [validation_task(kernel, features, evidence, domains[1 + k], len(y), k, rng) for k in chosen]
    return level + unit * average(tasks, left_out, own) @ predictions


def input_units(X):
    """A function that gives rows in standard units, for lines, and on a scale with short tails, for curves."""
    mean, deviation = X.mean(0), np.where(X.std(0) > 0, X.std(0), 1.0)
    low, median, high = np.quantile(X, [0.25, 0.5, 0.75], axis=0)
    spread = np.where(high > low, (high - low) / 1.349, deviation)
    middle = np.where(high > low, median, mean)

    def transform(rows):
        distance = (rows - middle) / spread
        return (rows - mean) / deviation, np.sign(distance) * np.log1p(np.abs(distance))

    return transform


def squares(left, right):
    """Squared distances between rows."""
    return np.maximum((left**2).sum(1)[:, None] + (right**2).sum(1) - 2 * left @ right.T, 0)


def shared_covariance(kernel, left, right):
    """Covariances of the function that domains share: a Matern curve, a line and a level."""
    distance = np.sqrt(5 * squares(left[1] / kernel["lengths"], right[1] / kernel["lengths"]))
    curve = (1 + distance + distance**2 / 3) * np.exp(-distance)
    return kernel["curve"] * curve + kernel["line"] * left[0] @ right[0].T / left[0].shape[1] + kernel["level"]


def own_covariance(kernel, left, right):
    """Covariances of what a domain adds to it: a smooth curve and a line; its level comes apart."""
    curve = np.exp(-0.5 * squares(left[1] / kernel["own_lengths"], right[1] / kernel["own_lengths"]))
    return kernel["own_curve"] * curve + (left[0] * kernel["own_slopes"]) @ right[0].T / left[0].shape[1]


def learn_kernel(domains, rng, most=300):
    """Lengths and variances by the marginal likelihood of focal rows and of 60 rows of some sources."""
    chosen = [(0, len(domains[0][1][: most * 2 // 3]))]
    for k in 1 + rng.permutation(len(domains) - 1):
        chosen.append((k, min(60, most - sum(size for _, size in chosen), len(domains[k][1]))))
    rows = [np.vstack([domains[k][0][axis][:size] for k, size in chosen]) for axis in (0, 1)]
    targets = np.concatenate([domains[k][1][:size] for k, size in chosen])
    labels = np.repeat([k for k, _ in chosen], [size for _, size in chosen])
    same, width = (labels[:, None] == labels).astype(float), rows[0].shape[1]
    middle = np.repeat(np.log([1.5 * width**0.5, 0.1]), [2 * width, width])
    middle = np.append(middle, np.log([0.5, 0.25, 0.5, 0.1, 0.1, 0.2]))
    spread = np.append(np.repeat([1.5, 1.0, 1.5], [width, width, width + 5]), 3.0)

    def kernel_of(logarithms):
        values = np.exp(logarithms)
        names = ("curve", "line", "level", "own_curve", "own_level", "noise")
        lengths = dict(zip(("lengths", "own_lengths", "own_slopes"), values[: 3 * width].reshape(3, width)))
        return {**lengths, **dict(zip(names, values[3 * width :]))}

    differences = (rows[1][:, None] - rows[1]) ** 2
    lines = rows[0] @ rows[0].T / width

    def negative_density(logarithms):
        kernel = kernel_of(logarithms)
        distance = np.sqrt(5 * differences @ kernel["lengths"] ** -2.0)
        curve = (1 + distance + distance**2 / 3) * np.exp(-distance)
        own_curve = same * np.exp(-0.5 * differences @ kernel["own_lengths"] ** -2.0)
        own = kernel["own_curve"] * own_curve + same * ((rows[0] * kernel["own_slopes"]) @ rows[0].T / width)
        covariance = kernel["curve"] * curve + kernel["line"] * lines + kernel["level"] + own
        covariance += same * kernel["own_level"] + (kernel["noise"] + 1e-7) * np.eye(len(targets))
        inverse = np.linalg.inv(covariance)
        solved = inverse @ targets
        slope = 0.5 * (np.outer(solved, solved) - inverse)
        curve_slope = slope * (-5 / 6) * (1 + distance) * np.exp(-distance)
        gradient = np.concatenate(
            [
                -2 * kernel["curve"] * kernel["lengths"] ** -2.0 * np.einsum("ij,ijk", curve_slope, differences),
                kernel["own_curve"]
                * kernel["own_lengths"] ** -2.0
                * np.einsum("ij,ijk", slope * own_curve, differences),
                kernel["own_slopes"] * (((slope * same) @ rows[0]) * rows[0]).sum(0) / width,
                [kernel["curve"] * (slope * curve).sum(), kernel["line"] * (slope * lines).sum()],
                [kernel["level"] * slope.sum(), kernel["own_curve"] * (slope * own_curve).sum()],
                [kernel["own_level"] * (slope * same).sum(), kernel["noise"] * np.trace(slope)],
            ]
        )
        deviation = (logarithms - middle) / spread
        value = 0.5 * targets @ solved + 0.5 * np.linalg.slogdet(covariance)[1] + 0.5 * deviation @ deviation
        return value, deviation / spread - gradient

    bounds = list(zip(middle - 4 * spread, middle + 4 * spread))
    best = minimize(negative_density, middle, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 40})
    return kernel_of(best.x)


def choose_landmarks(domains, rng, most=350):
    """Some focal rows and rows of all sources, at which features of the shared function are computed."""
    parts = [[z[: most // 3] for z in domains[0][0]], *(rows for rows, _ in domains[1:])]
    if len(parts) == 1:
        return [z[:most] for z in domains[0][0]]
    rows = [np.vstack(each) for each in zip(*parts)]
    first, others = np.split(np.arange(len(rows[0])), [len(parts[0][0])])
    index = np.append(first, rng.permutation(others))
    _, distinct = np.unique(rows[0][index], axis=0, return_index=True)
    return [z[index][np.sort(distinct)][:most] for z in rows]


def shared_features(kernel, landmarks):
    """A function that gives features whose inner products are covariances of the shared function (Nystroem)."""
    covariance = shared_covariance(kernel, landmarks, landmarks)
    root = np.linalg.cholesky(covariance + 1e-6 * np.diag(covariance).mean() * np.eye(len(covariance)))
    return lambda rows: np.linalg.solve(root, shared_covariance(kernel, landmarks, rows)).T


def missing(kernel, features, rows):
    """Variances of the shared function that its features lack."""
    line = kernel["line"] * (rows[0] ** 2).sum(1) / rows[0].shape[1]
    return np.maximum(kernel["curve"] + line + kernel["level"] - (features(rows) ** 2).sum(1), 0)


def source_evidence(kernel, features, rows, targets):
    """What a source says of the shared function: a precision matrix and a vector, to be added up over sources."""
    covariance = own_covariance(kernel, rows, rows) + kernel["own_level"]
    covariance += np.diag(kernel["noise"] + missing(kernel, features, rows))
    weighted = np.linalg.solve(covariance, features(rows)).T
    return weighted @ features(rows), weighted @ targets


def candidates(kernel, features, evidence, rows, targets, new):
    """Predictions for new rows, and residuals of left-out rows, of all candidates for one domain."""
    count, both = len(targets), [np.vstack(pair) for pair in zip(rows, new)]
    shared = features(both)
    precision = sum((A for A, _ in evidence), np.eye(shared.shape[1]))
    mean = shared @ np.linalg.solve(precision, sum((b for _, b in evidence), np.zeros(len(precision))))
    known = shared @ np.linalg.solve(precision, shared[:count].T)
    own, lacking = own_covariance(kernel, both, rows), missing(kernel, features, rows)
    system = known[:count] + own[:count] + FREE + np.diag(kernel["noise"] + lacking)
    if 2 * targets @ np.linalg.solve(system, mean[:count]) < -2.0:
        mean = -mean
    centred = mean - mean[:count].mean()
    level, noise, fits = kernel["own_level"], kernel["noise"] + lacking, []
    for strength in STRENGTHS if evidence else ():
        for free, scale in ((level, 0.0), (FREE, 0.0), (FREE, 0.5), (FREE, 100.0)):
            fits.append((mean, known + strength * own + free + scale * np.outer(centred, centred[:count]), noise))
    for strength in (1.0, 8.0):
        fits.append((0 * mean, shared @ shared[:count].T + strength * own + FREE, noise))
    for ridge in RIDGES:
        fits.append((0 * mean, both[0] @ rows[0].T / rows[0].shape[1] + FREE, ridge + 0 * noise))
    predictions, left_out = [], []
    for prior, covariance, variance in fits:
        inverse = np.linalg.inv(covariance[:count] + np.diag(variance))
        solved = inverse @ (targets - prior[:count])
        predictions.append(prior[count:] + covariance[count:] @ solved)
        left_out.append(solved / np.diag(inverse))
    return np.array(predictions), np.array(left_out)


def chosen_tasks(domains, rng):
    """Sources with rows to spare, in random order: each takes the role of the focal domain."""
    rows = len(domains[0][1])
    able = [k for k in range(len(domains) - 1) if len(domains[1 + k][1]) >= rows + max(8, rows // 4)]
    most = 20 if rows <= 100 else 6
    drawn = list(rng.permutation(able))[:most] if len(domains) > 3 and len(able) > 1 else []
    return drawn * min(most // max(len(drawn), 1), 2)


def validation_task(kernel, features, evidence, domain, count, place, rng):
    """A source learns from as many rows as the focal domain has; its other rows test the candidates."""
    rows, targets = domain
    order = rng.permutation(len(targets))[: count + 300]
    learn, test = [z[order[:count]] for z in rows], [z[order[count:]] for z in rows]
    others = evidence[:place] + evidence[place + 1 :]
    predictions, left_out = candidates(kernel, features, others, learn, targets[order[:count]], test)
    return mean_products(targets[order[count:]] - predictions), np.diag(mean_products(left_out))


def mean_products(residuals):
    """Mean products of the residuals of all candidates, each clipped at five robust standard deviations."""
    limit = 5 * np.median(np.abs(residuals), axis=1, keepdims=True) / 0.6745
    clipped = np.clip(residuals, -limit, limit)
    return clipped @ clipped.T / residuals.shape[1] + 1e-12 * np.eye(len(residuals))


def average(tasks, left_out, own):
    """Shares of the candidates, from tasks and left-out rows; these decide where the domain is unlike the tasks."""
    focal, rows = mean_products(left_out), left_out.shape[1] / 200
    if not tasks:
        return least_error(focal / np.diag(focal).min(), 0.04)
    said = np.mean([products / np.diag(products).min() for products, _ in tasks], axis=0)
    relative = focal / np.diag(focal).min()
    shares = least_error(said + rows * relative, 0.02)
    profile = [np.log(shares @ errors / errors[own].min()) for errors in [*(e for _, e in tasks), np.diag(focal)]]
    stray = max(np.std(profile[:-1]) * (1 + 1 / len(tasks)) ** 0.5, 0.3)
    distance = (profile[-1] - np.mean(profile[:-1])) / stray
    trust = 1.0 if distance < 2 else np.exp(-0.5 * (distance**2 - 4))
    return least_error(trust * said + (rows + 1 - trust) * relative, 0.02)


def least_error(products, pull):
    """Shares on the simplex of the least squared error, equal among equals."""
    least = np.diag(products).min()
    root = np.linalg.cholesky(products + pull * least * np.eye(len(products)))
    shares = nnls(np.vstack([root.T / least**0.5, np.ones(len(products))]), np.append(0 * root[0], 1.0))[0]
    return shares / shares.sum()


def common_signs(rows, targets):
    """The sign of every source along the function that most of them share; misleading ones are reflected."""
    if len(rows) < 2:
        return np.ones(len(rows))
    width = rows[0][0].shape[1]
    kernel = {"lengths": np.full(width, 1.5 * width**0.5), "curve": 1.0, "line": 1.0, "level": 0.0}
    common = [np.vstack([z[axis][:200] for z in rows])[:: max(len(rows) // 2, 1)] for axis in (0, 1)]
    functions = []
    for place, values in zip(rows, targets):
        place, values = [z[:200] for z in place], values[:200]
        scaled = (values - values.mean()) / (values.std() or 1.0)
        covariance = shared_covariance(kernel, place, place) + np.eye(len(values))
        function = shared_covariance(kernel, common, place) @ np.linalg.solve(covariance, scaled)
        functions.append(function - function.mean())
    loadings = np.linalg.svd(np.array(functions), full_matrices=False)[0][:, 0]
    return np.where(loadings * np.sign(np.sign(loadings).sum() + 0.5) < 0, -1.0, 1.0)
