"""The adversary's suite: a coordinator that lies and a site that lies, with their tricks by name.

A trick is a method with `@trick` above it: of a class in `coordinator`, `masks` or `words` for what a coordinator
sends, of a class in `site` for what a site answers; `surveys`, `masked_surveys` and `comparisons` have both. A kind of
message without a trick fails `test_kinds`.
"""
