"""The networks that only the papers and their presets need; `encoder.kind` names them."""

from dupq.encoders.protocol import NetworkSettings
from dupq_papers.networks.bow_cnn import BowCNNSettings, MaxCNNSettings
from dupq_papers.networks.cnn import CNNSettings
from dupq_papers.networks.mappsent import MappSentSettings
from dupq_papers.networks.recurrent import RecurrentSettings
from dupq_papers.networks.sif import SIFSettings
from dupq_papers.networks.stacked_cnn import StackedCNNSettings
from dupq_papers.networks.width_cnn import WidthCNNSettings
from dupq_papers.networks.word_bag_cnn import WordBagCNNSettings

KINDS: list[type[NetworkSettings]] = [
    BowCNNSettings,
    CNNSettings,
    MappSentSettings,
    MaxCNNSettings,
    RecurrentSettings,
    SIFSettings,
    StackedCNNSettings,
    WidthCNNSettings,
    WordBagCNNSettings,
]
