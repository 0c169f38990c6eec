"""scikit-learn's own checks, all of them, for every estimator."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from mixtune.estimators import (
    JointRegressor,
    JointSubsetRegressor,
    LocalRegressor,
    MeanOfLocalsRegressor,
    MultiDomainClassifier,
    MultiDomainRegressor,
    RegretOptimalClassifier,
    RegretOptimalClassifierCV,
    RegretOptimalRegressor,
    RegretOptimalRegressorCV,
)


@parametrize_with_checks(
    [
        RegretOptimalRegressor(),
        RegretOptimalRegressor(weights="equal", fit_intercept=False),
        LocalRegressor(),
        LocalRegressor(ridge="loo"),
        MeanOfLocalsRegressor(),
        JointRegressor(),
        JointSubsetRegressor(),
        RegretOptimalClassifier(),
        RegretOptimalRegressorCV(),
        RegretOptimalRegressorCV(fit_intercept=False),
        RegretOptimalClassifierCV(),
        MultiDomainRegressor(feature_map=None),
        MultiDomainClassifier(feature_map=None),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
