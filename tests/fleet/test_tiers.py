import pytest

from warmturn.fleet import Tier, tier_named


@pytest.mark.parametrize(
    ("medium", "tier"),
    [
        ("GPU", Tier.DEVICE),
        ("gpu", Tier.DEVICE),
        (" HBM ", Tier.DEVICE),
        ("CPU", Tier.HOST),
        ("CPU_PINNED", Tier.HOST),
        ("CPU_TIER2", Tier.HOST),
        ("STORAGE", Tier.STORAGE),
        ("disk", Tier.STORAGE),
        ("", Tier.OTHER),
        ("TAPE", Tier.OTHER),
    ],
)
def test_each_name_of_a_medium_has_one_tier(medium, tier):
    assert tier_named(medium) is tier
