"""All constants of the choice, each with what it is for and what happens without it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mixtune.arrays import Floats


@dataclass(frozen=True, eq=False)
class ChoiceSettings:
    """Constants of the choice; they were set once, on problems other than those of the benchmarks."""

    # --- which candidates there are ---

    #: Most columns for which a covariance between coefficients is learned: beyond, there are more entries than the
    #: sources can determine, and expectation-maximisation costs p^3 for each source and step.
    narrow_columns: int = 40
    #: More columns than this make every fit expensive: fewer validation tasks and candidates. Without it, a tuned fit
    #: at 500 columns takes minutes.
    wide_columns: int = 200
    #: Fewest sources for a learned covariance: two heads have no covariance to speak of.
    learned_sources: int = 3
    #: Most sources for which pooled candidates also come with one level for all, up to and above ``wide_columns``: the
    #: spectra of the sources are most of the cost.
    one_level_sources: tuple[int, int] = (40, 12)
    #: Fewest sources for two groups.
    grouped_sources: int = 8
    #: Ridges of the focal-only candidates, relative to the mean eigenvalue of the features.
    focal_ridges: Floats = field(default_factory=lambda: np.logspace(-3.5, 2.5, 13))
    #: Multiples of a learned prior's covariance along a path.
    learned_scales: Floats = field(default_factory=lambda: np.array([0.125, 0.25, 0.5, 1.0, 2.0, 4.0]))
    #: Multiples of a pooled prior's covariance: two parameters fit less well than a matrix, so the range is wider.
    pooled_scales: Floats = field(default_factory=lambda: np.array([0.01, 0.03, 0.1, 0.3, 1.0, 3.0]))

    # --- priors learned by expectation-maximisation ---

    #: Steps of expectation-maximisation, for the hierarchy and for two groups; it has settled by then.
    hierarchy_steps: int = 20
    group_steps: int = 15
    #: Rows that the common noise counts as when each source's noise is estimated: few rows alone would say zero.
    noise_rows: float = 10.0
    #: Smallest noise and spread for targets of unit variance: noiseless data would divide by zero.
    smallest_variance: float = 1e-6
    #: Smallest noise, relative to the variance about a fit to all sources. Without it, sources of one or two rows are
    #: fitted exactly, weights of groups become infinitely sharp, and rounding decides.
    smallest_noise: float = 1e-4
    #: Spread of priors about the "nearest" sources, about the "similar" ones and within groups, relative to that
    #: between all sources; and how many pseudo-domains of that spread are added, so that one source has a covariance.
    nearest_spread: float = 0.1
    similar_spread: float = 0.3
    group_spread: float = 0.3
    pseudo_domains: float = 2.0

    # --- similar features ---

    #: Sources count as similar up to this multiple of the least distance, or of what chance makes of few rows
    #: (Algorithm 1 of the paper has the same threshold).
    similar_reach: float = 2.0
    #: Most columns for which covariances of features are compared in full; of more, standard deviations only, which is
    #: the same where columns vary independently and saves p^3 operations for each pair of domains.
    covariance_columns: int = 16

    # --- pooled and stacked priors ---

    #: Part of a head's variance that is the domain's own, with an intercept for each domain and with one for all.
    own_variance: float = 0.5
    own_variance_one_level: float = 0.003
    #: Variance along the pooled head, relative to its square: domains often differ in how strongly the same thing
    #: counts. Without it, such domains are pulled to the common strength.
    stretch: float = 0.25
    #: Sizes of the subsets of likeliest sources.
    subset_sizes: tuple[int, ...] = (1, 8)
    #: Most sources whose evidence is computed, where rows are fewer than columns; else the errors of their heads
    #: decide: evidence costs n^3.
    evidence_sources: int = 12
    #: Most bytes of sources' messages to keep; beyond, they are made when asked for and only their sums are kept.
    message_bytes: int = 2**28
    #: Prior variance of one source's weight in stacked candidates.
    stacked_variance: float = 0.5

    # --- feature maps ---

    #: Most inputs that curves are tried for.
    curved_inputs: int = 60
    #: Of more inputs, up to so many, curves are tried for so many leading principal components: splines of hundreds of
    #: columns cost more than they tell.
    most_curved_inputs: int = 512
    components: int = 20
    #: Validation tasks that all maps share: each map beyond the inputs adds to the cost.
    map_tasks: int = 12
    #: Knots of splines, the most that keep all columns together within ``narrow_columns``.
    spline_knots: tuple[int, ...] = (4, 3)
    #: Random Fourier features beside the inputs.
    fourier_width: int = 100
    #: Beside learned columns, Fourier features are tried where one model for all sources has at most this part of the
    #: error of splines: where columns act together. Elsewhere they take a fifth of the time and change errors by less
    #: than half a percent.
    fourier_error: float = 0.96
    #: Random features of the ridge model that is learned from the sources, how many of them tell signs, and folds of
    #: sources.
    pretraining_width: int = 150
    sign_width: int = 100
    pretraining_folds: int = 3
    #: Most outputs, or classes, that columns are learned for: each has trees of its own.
    learned_outputs: int = 8
    #: Parameters of the boosted trees that are learned from the sources.
    trees: dict[str, float] = field(
        default_factory=lambda: {
            "max_iter": 10,
            "learning_rate": 0.35,
            "max_leaf_nodes": 8,
            "min_samples_leaf": 10,
            "max_depth": 6,
        }
    )
    #: Where all trees together have at most this part of the error of their first half, on rows that they were not
    #: fitted to, they are too few: more trees take their place. Without it, targets that jump at many values of a
    #: column are fitted half as well as by other packages; with more trees everywhere, fits take twice as long.
    unfinished_error: float = 0.93
    more_trees: dict[str, float] = field(
        default_factory=lambda: {
            "max_iter": 80,
            "learning_rate": 0.15,
            "max_leaf_nodes": 16,
            "min_samples_leaf": 10,
            "max_depth": 10,
        }
    )
    #: Focal rows from which trees are fitted to them too, in folds of rows. They are a map of their own where they tell
    #: more about these rows than the columns that were learned from the sources: elsewhere they take time and change
    #: nothing. Without them, targets that jump at places of the focal domain's own are missed, and errors stop falling
    #: at some thousand rows.
    own_rows: int = 150
    #: Where few trees have more than this multiple of the error of the learned columns, more trees are not tried.
    hopeless_error: float = 1.2
    #: Focal rows from which more trees are tried elsewhere, and the better of both kept: there is time for them.
    many_own_rows: int = 400
    #: Focal rows whose leave-one-out errors count as much as all validation tasks when maps are averaged; fewer count
    #: in proportion. Without it, twenty rows that happen to suit one map decide.
    maps_focal_rows: float = 200.0
    #: The pull towards equal weights, with tasks and without.
    maps_pull: tuple[float, float] = (0.01, 0.02)
    #: Without tasks and with fewer focal rows than this, the pull grows in proportion: one row must not choose a map.
    maps_rows: float = 30.0
    #: Focal rows, in all and for each column, from which the fit to them alone is averaged with that over maps, and how
    #: many count as much as all validation tasks, more in proportion. Without it, a domain of a hundred rows that is
    #: unlike the others does worse than its own rows alone; with fewer rows for each column, errors rise.
    own_fit_rows: float = 64.0
    own_fit_rows_per_column: float = 4.0
    own_fit_focal_rows: float = 100.0
    #: Candidates and maps with a smaller share are left out of variances: each costs a solve, and adds nothing.
    smallest_share: float = 0.01

    # --- cross-domain validation ---

    #: Most validation tasks, with few columns, above ``narrow_columns`` and above ``wide_columns``. Fewer would change
    #: the shares: those of the exams still move by a tenth from 48 to 60 tasks, so that no rule stops before the last.
    most_tasks: tuple[int, int, int] = (64, 12, 6)
    #: Most validation tasks of one source, with other rows each time: where sources are few, one draw is noisy.
    tasks_per_source: int = 2
    #: Fewest sources for cross-domain validation: with two, each has one other to learn from.
    validated_sources: int = 3
    #: Most focal rows for which it is of use: with more, leave-one-out on the focal rows says all.
    validated_rows: int = 1000
    #: Most rows to test one validation task on.
    test_rows: int = 500
    #: Numbers (4 MB) that validation tasks done in one call may take for covariances and leverages: small tasks one by
    #: one spend most of their time between calls.
    batch_entries: int = 2**19
    #: Rows of a validation task that are left out in turn above ``wide_columns``, where its rows are more than its
    #: columns: they only say how much wider intervals should be. Without it, leverages of all rows take half the time.
    left_out_rows: int = 128
    #: Largest residual of a left-out row that stands in for a test, in standard deviations of the targets: rows of
    #: leverage 1 have infinite ones.
    largest_residual: float = 1e3

    # --- model averaging ---

    #: Sources whose validation tasks decide weights freely; with fewer, weights are pulled towards equal shares of the
    #: families, by ``prior_pull`` times the square of what is missing. Without it, a few tasks are overfitted.
    enough_sources: int = 24
    prior_pull: float = 0.005
    #: With more sources than this, a candidate's prior weight falls by exp(-e k/told_errors), where e is by what part
    #: its own error exceeds the least one and k how many sources there are beyond this number. Without it, the weights
    #: of candidates whose averages predict equally well stay arbitrary.
    untold_sources: int = 12
    told_errors: float = 0.6
    #: A candidate's weight falls by exp(-n e/trust), where e is by what part its leave-one-out error on n focal rows
    #: exceeds the least one. The trust is the first number without validation, and grows by the second in proportion to
    #: validated sources, up to ``enough_sources``. Without it, a few rows overrule what all sources say.
    rows_trust: float = 4.0
    tasks_trust: float = 36.0
    #: Mean squared errors below this part of the targets' variance count as equal. Without it, rounding decides between
    #: candidates that are exact.
    negligible_error: float = 1e-8
    #: Candidates of a smaller share do not count for the rows beyond those that they are judged on.
    rounding_share: float = 1e-12
    #: Most focal rows to judge candidates on at once: errors of 4,000 rows are known to 2%.
    judged_rows: int = 4000

    # --- intervals of coefficients ---

    #: Steps of the grid over which the scatter of coefficients between domains is integrated out.
    scatter_steps: int = 40

    # --- what transfer gains ---

    #: Prior probability that the focal domain is unlike the sources, and the spread of log error ratios then.
    unlike_probability: float = 0.1
    unlike_spread: float = 0.5
    #: Ridges of the joint fit that the choice is compared with, relative to the mean eigenvalue.
    joint_ridges: Floats = field(default_factory=lambda: np.logspace(-5, 1, 13))

    # --- every domain at once ---

    #: Domains are validated in so many folds, divided by their number: each alone up to six, two from 24 on. Every
    #: fold has tasks of its own.
    shared_folds: int = 48
    #: Most validation tasks that domains of one fold and about as many rows share.
    shared_tasks: int = 12
    #: Most domains that priors are learned from: each domain is compared with all of them.
    shared_sources: int = 256

    #: Most folds of domains that are left out in turn for the model of domains that were not seen.
    population_folds: int = 64
    #: Ridges of that model, relative to the mean eigenvalue; and rows that a domain's level counts as unknown for.
    population_ridges: tuple[float, ...] = (1e-4, 1e-2)
    level_rows: float = 4.0

    # --- thousands of sources ---

    #: Most sources that priors are learned from, unless their rows are very few: the mean of M heads is off by 1/M of
    #: their variance.
    sampled_sources: int = 512
    #: Rows for each column that a sample of sources has at least, where there are as many.
    rows_per_column: int = 20


SETTINGS = ChoiceSettings()
