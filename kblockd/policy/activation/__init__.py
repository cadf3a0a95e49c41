"""Bring a bundle into force: prepare, record, swap, retire.

    loading       LoadingEngine: a PolicyEngine that loads bundles itself, whatever answers for them
    bundle_watch  BundleWatch: polls the configured bundle and activates a new one
    polling       what every watch shares: a poll loop that survives errors, and de-duplicated refusal reports
    standing      what the daemon last did about its policy, in a file beside its store

Records of activations are the composition root's: it hands in callbacks.
"""
