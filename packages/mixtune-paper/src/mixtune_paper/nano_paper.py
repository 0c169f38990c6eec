"""The paper in one file of NumPy: Algorithms 1 to 3, energy and regret, in the paper's notation.

For reading and for checks. Nothing here is fast, and nothing of the package is used; ``mixtune.solve`` computes the
same heads with one p x p system, and a test compares the two. Datasets are lists of features U^i (n_i, p) and targets
Y^i (n_i,); the first is focal. Where the printed text contradicts itself, the errata of the theory page are followed.
"""

import numpy as np
from scipy.optimize import linprog
from scipy.spatial.distance import cdist


def theta_star(U, Y, kappa):
    """Equation (78): the local ridge head of one dataset."""
    return np.linalg.solve(U.T @ U + kappa * np.eye(U.shape[1]), U.T @ Y)


def W_1(left, right):
    """The 1-Wasserstein distance of two samples of points, as a linear programme over transport plans."""
    cost = cdist(left, right)
    n, m = cost.shape
    leaving = np.kron(np.eye(n), np.ones(m))
    arriving = np.kron(np.ones(n), np.eye(m))
    masses = np.concatenate([np.full(n, 1 / n), np.full(m, 1 / m)])
    return linprog(cost.ravel(), A_eq=np.vstack([leaving, arriving]), b_eq=masses).fun


def algorithm_1(X, Y, eta, gamma):
    """Weights w (1) of datasets with inputs X^i (n_i, d) and targets Y^i."""
    points = [np.column_stack([x, y]) for x, y in zip(X, Y)]
    s = np.array([W_1(points[0], other) for other in points])
    s[0] = 0.0
    size = np.array([len(other) ** (-1 / other.shape[1]) for other in points])
    T = s <= eta
    w = np.where(T, np.exp(-gamma * (s + size)), 0.0)
    return w / w.sum()


def algorithm_2(U, Y, w, Theta_star, lam, beta, T):
    """Theta(0), ..., Theta(T), each (N, p), by the Riccati recursion (12) to (14)."""
    N, p = Theta_star.shape
    reference = Theta_star.ravel()
    I = np.eye(N * p)
    mix = np.hstack([w_i * np.eye(p) for w_i in w])
    P = {T: mix.T @ sum(w_i * U_i.T @ U_i for w_i, U_i in zip(w, U)) @ mix}
    S = {T: -mix.T @ sum(w_i * U_i.T @ Y_i for w_i, U_i, Y_i in zip(w, U, Y))}
    for t in range(T - 1, 0, -1):
        M = np.linalg.inv((lam + beta) * I + P[t + 1])
        P[t] = beta * I - beta**2 * M
        S[t] = beta * M @ (S[t + 1] - lam * reference)
    Theta = [reference]
    for t in range(T):
        pull = (lam * I + P[t + 1]) @ Theta[t] - lam * reference + S[t + 1]
        alpha = -np.linalg.solve((lam + beta) * I + P[t + 1], pull)
        Theta.append(Theta[t] + alpha)
    return np.stack(Theta).reshape(T + 1, N, p)


def algorithm_3(U, Y, Theta_star, lam, beta, T):
    """The same for weights 1/N, with all heads held to their mean: three p x p systems whatever N is."""
    N, p = Theta_star.shape
    mean = Theta_star.mean(axis=0)
    I = np.eye(p)

    def gammas(pi_1, pi_2):
        core = np.linalg.inv((lam + beta) * I + pi_1 + (N - 2) * pi_2)
        gamma_1 = np.linalg.inv((lam + beta) * I + pi_1 - (N - 1) * pi_2 @ core @ pi_2)
        return gamma_1, -gamma_1 @ pi_2 @ core

    gram = sum(U_i.T @ U_i for U_i in U) / N**3
    cross = sum(U_i.T @ Y_i for U_i, Y_i in zip(U, Y)) / N**2
    pi = {T: (gram, gram, -cross)}
    for t in range(T - 1, -1, -1):
        pi_1, pi_2, pi_3 = pi[t + 1]
        gamma_1, gamma_2 = gammas(pi_1, pi_2)
        common = gamma_1 + (N - 1) * gamma_2
        pi[t] = beta * I - beta**2 * gamma_1, -(beta**2) * gamma_2, beta * common @ (pi_3 - lam * mean)
    theta = [Theta_star]
    for t in range(T):
        pi_1, pi_2, pi_3 = pi[t + 1]
        gamma_1, gamma_2 = gammas(pi_1, pi_2)
        own = (gamma_1 - gamma_2) @ (lam * I + pi_1 - pi_2)
        shared = gamma_1 @ pi_2 + gamma_2 @ (lam * I + pi_1 + (N - 2) * pi_2)
        constant = (gamma_1 + (N - 1) * gamma_2) @ (pi_3 - lam * mean)
        alpha = -theta[t] @ own.T - theta[t].sum(axis=0) @ shared.T - constant
        theta.append(theta[t] + alpha)
    return np.stack(theta)


def loss(U, Y, w, theta):
    """The terminal loss l of the mixed head theta^w = sum_i w_i theta_i."""
    mixed = w @ theta
    return sum(w_i * np.sum((U_i @ mixed - Y_i) ** 2) for w_i, U_i, Y_i in zip(w, U, Y))


def energy(U, Y, w, Theta, reference, lam, beta):
    """The energy L (4) of heads Theta(0), ..., Theta(T); ``reference`` are the heads Theta* or one head for all."""
    away = np.sum((Theta[1:] - reference) ** 2)
    moved = np.sum((Theta[1:] - Theta[:-1]) ** 2)
    return lam * away + beta * moved + loss(U, Y, w, Theta[-1])


def regret(U, Y, w, Theta, reference, lam, beta):
    """The regret R (2): the energy less the least loss l* of any heads."""
    rows = np.vstack([np.sqrt(w_i) * U_i for w_i, U_i in zip(w, U)])
    targets = np.concatenate([np.sqrt(w_i) * Y_i for w_i, Y_i in zip(w, Y)])
    best = np.linalg.lstsq(rows, targets, rcond=None)[0]
    least = np.sum((rows @ best - targets) ** 2)
    return energy(U, Y, w, Theta, reference, lam, beta) - least
