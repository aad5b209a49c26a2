"""The fixture of `tiny_models`; a test module gets it by `pytest_plugins = ("tiny_fixtures",)`."""

import pytest
from tiny_models import TinyModels


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    return TinyModels(tmp_path_factory.mktemp("tiny_models"))
