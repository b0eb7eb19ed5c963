"""Operations on distributed tables: a pure plan, one exchange loop, and a short recipe each."""
