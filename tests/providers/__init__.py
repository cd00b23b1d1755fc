"""Strict fake model providers: real HTTP servers that refuse what the real ones refuse.

    async with ResponsesProvider(Answer(Text("Hello."))) as provider:
        model = ResponsesModel(provider.settings())
        ...
    assert provider.violations == []

`tests.providers.responses` and `tests.providers.chat` hold the servers, `tests.providers.answers` what
they can be told to answer. Each also runs alone: `python -m tests.providers.responses --port 0`.
"""
