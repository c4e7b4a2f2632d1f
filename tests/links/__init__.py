import pytest

pytest.register_assert_rewrite("tests.links.conformance", "tests.links.packets")
