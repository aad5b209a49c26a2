"""The fixture `pretrained`; a test module gets it by `pytest_plugins = ("pretrained_fixtures",)`. `make setup` installs what it reads."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cache

import pytest
from antibody import Loader

from glauber_mlm import models
from glauber_mlm.pretrained.cache import CACHE_VARIABLE
from glauber_mlm.pretrained.registry import find


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loader]:
    """Loads a pretrained model by its name, converted into a cache of this session. Shared between tests: not to be changed."""
    folder = tmp_path_factory.mktemp("converted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(folder))
        yield cache(lambda name: models.load(name, kind=find(name).kind))
    shutil.rmtree(folder)  # half a gigabyte, which pytest would keep for three runs
