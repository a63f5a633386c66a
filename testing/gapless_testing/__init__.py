"""What gapless ships for testing: conformance suites for plugins, one module per kind, and a proxy that breaks links.

The suites are pytest classes to inherit from: `gapless_testing.storage.StorageSuite` for a storage. They
need pytest, and the property tests hypothesis; importing this package needs neither, nor does
`gapless_testing.fault_proxy.FaultProxy`.
"""

import sys

if (_pytest := sys.modules.get("pytest")) is not None:
    # Else a failed assertion in a suite would say "AssertionError" and nothing more.
    _pytest.register_assert_rewrite(
        *(f"gapless_testing.{suite}" for suite in ("log", "routing", "storage", "transport", "running"))
    )
