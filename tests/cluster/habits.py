"""What users of pandas, polars and DuckDB reach for in a notebook, each with its outcome: an answer, which is pandas'
own on the whole frame, or an error that says what to call instead.

`t` is a table of trips on the ranks, `z` one of zones; in the code of an answer both are frames of pandas.
"""

# ruff: noqa: E501 (a table)
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Habit:
    """One habit.

    Attributes
    ----------
    code : str
        What is typed.
    pandas : str
        What it is in pandas where that is something else.
    refused : str
        A regular expression that the error's text matches, where it is refused.
    any_order : bool
        Whether the answer's rows are in no particular order.
    """

    code: str
    pandas: str = ""
    refused: str = ""
    any_order: bool = False


def answer(code: str, pandas: str = "") -> Habit:
    """A habit that is answered."""
    return Habit(code, pandas or code)


def unordered(code: str, pandas: str = "") -> Habit:
    """A habit that is answered, with rows in no particular order."""
    return Habit(code, pandas or code, any_order=True)


def refused(code: str, said: str) -> Habit:
    """A habit that is refused, with what to do instead."""
    return Habit(code, refused=said)


def trips(rows: int = 300) -> pd.DataFrame:
    """Trips, with missing values, ties, and whole numbers small enough to be exact."""
    rng = np.random.default_rng(5)
    pickup = pd.Timestamp("2024-01-28") + pd.to_timedelta(np.sort(rng.integers(0, 80 * 86400, rows)), "s")
    return pd.DataFrame(
        {
            "id": np.arange(rows) * 3,
            "vendor": rng.integers(1, 4, rows),
            "zone": [None if i % 13 == 0 else f"zone-{i * 7 % 11}" for i in range(rows)],
            "fare": np.where(np.arange(rows) % 17 == 3, np.nan, rng.integers(8, 200, rows) / 4),
            "tip": rng.integers(0, 40, rows) / 8,
            "seats": rng.integers(1, 6, rows),
            "pickup": pickup.astype("datetime64[us]"),
            "card": rng.random(rows) < 0.6,
        }
    ).assign(dropoff=lambda frame: frame.pickup + pd.to_timedelta(frame.seats * 300, "s"))


def zones() -> pd.DataFrame:
    """Zones of trips, but one."""
    return pd.DataFrame({"zone": [f"zone-{i}" for i in range(10)], "borough": list("ABCABCABCA"), "n": range(10)})


BRACKETS = [
    answer("t['fare']"),
    answer("t.fare"),
    answer("t[['zone', 'fare']]"),
    answer("t[t.fare > 30]"),
    answer("t[(t.fare > 30) & (t.zone == 'zone-3')]"),
    answer("t[(t.fare > 30) | ~t.card]"),
    answer("t[t.zone.isin(['zone-1', 'zone-2'])]"),
    answer("t[t.fare.between(10, 20)][['id', 'fare']]"),
    answer("t[t.pickup >= '2024-03-01']"),
    answer("t[t.zone.isna()]"),
    answer("t.query('fare > 30 and zone == \"zone-3\"')"),
    answer("t.query('seats in [1, 2]')"),
    answer("t.query('fare > @limit')"),
    answer("t.filter(gl.col('fare') > 30)", "t[t.fare > 30]"),
    answer("t[['fare', 'tip']].where(gl.col('fare') > 30)", "t[['fare', 'tip']].where(t.fare > 30)"),
    answer("t[['fare', 'tip']].mask(gl.col('fare') > 30, 0)", "t[['fare', 'tip']].mask(t.fare > 30, 0)"),
    answer("t.loc[t.fare > 30]"),
    answer("t.loc[t.fare > 30, 'zone']"),
    answer("t.loc[t.fare > 30, ['zone', 'fare']]"),
    answer("t.loc[:, ['zone', 'fare']]"),
    answer("t.iloc[:5]"),
    answer("t.iloc[-5:]"),
    answer("t[:5]"),
    answer("t.iloc[7].tolist()[:3]"),
    answer("t.iloc[5:9]"),
    refused("t.at[3, 'fare']", "filter"),
    refused("t['nope']", "There is no column 'nope'"),
    refused("t.loc[3]", "no index|no rows"),
    refused("t.__setitem__('y', t.fare * 2)", r"t = t.assign\(y="),
    refused("t.__delitem__('fare')", r"t.drop\('x'\)"),
    answer("'fare' in t"),
    answer("t.get('fare')"),
    answer("len(t)"),
    answer("t.shape"),
    answer("list(t.columns)"),
    answer("t.size"),
    answer("t.empty"),
    answer("t.ndim"),
    refused("t == z", "equals"),
    answer("t.equals(t)"),
    refused("list(t)", "head"),
    refused("t.index", "no index"),
    refused("t.T", "to_pandas"),
]

LOOKING = [
    answer("t.head()"),
    answer("t.tail(3)"),
    answer("t.fare.head(4)"),
    answer("t.describe()"),
    answer("t.describe(include='all')"),
    answer("t.describe(percentiles=[0.1, 0.9])"),
    answer("t.fare.describe()"),
    answer("t.zone.describe()"),
    answer("t.isna().sum()"),
    answer("t.isnull().sum()"),
    answer("t.notna().sum()"),
    answer("t.nunique()"),
    answer("t.fare.nunique()"),
    answer("len(t.sample(5))", "5"),
    answer("len(t.sample(frac=0.1))", "30"),
    answer("t.nlargest(5, 'fare')"),
    answer("t.nsmallest(5, ['fare', 'id'])"),
    answer("t.fare.nlargest(3)"),
    answer("t.sort_values('fare').head(7)", "t.sort_values('fare', kind='stable').head(7)"),
    answer(
        "t.sort_values(['vendor', 'fare'], ascending=[True, False])",
        "t.sort_values(['vendor', 'fare'], ascending=[True, False], kind='stable')",
    ),
    answer("t.fare.sort_values().head(3)"),
    answer("t.to_pandas(None)", "t"),
    answer("t.count()"),
    answer("t.select_dtypes('number')"),
    answer("t.top_k(3, by='fare')", "t.nlargest(3, 'fare')"),
    refused("t.compute()", "to_pandas"),
    refused("t.persist()", "the table itself"),
    refused("t.iterrows()", "map_parts"),
    refused("t.itertuples()", "map_parts"),
    refused("t.plot()", "to_pandas"),
    refused("t.sort_index()", "sort_values"),
    refused("t.sort_values('fare', inplace=True)", "take the result"),
    refused("t.style", "to_pandas"),
]

REDUCING = [
    answer("t.fare.mean()"),
    answer("t['fare'].sum()"),
    answer("t.fare.median()"),
    answer("t.fare.quantile([0.1, 0.9])"),
    answer("t.fare.std()"),
    answer("t.fare.min(), t.fare.max()"),
    answer("t.pickup.max()"),
    answer("(t.fare + t.tip).mean()"),
    answer("(t.fare > 30).sum()"),
    answer("t.card.any()"),
    answer("t.mean('fare')", "t.fare.mean()"),
    answer("t[['fare', 'tip']].mean()"),
    answer("t.mean(numeric_only=True)"),
    answer("t.agg({'fare': 'mean', 'tip': 'sum'})"),
    answer("t.agg({'fare': ['mean', 'max'], 'tip': 'sum'})"),
    answer("t.agg({'tip': np.sum, 'fare': np.mean})"),
    answer("t.fare.agg('mean')"),
    answer("t.fare.agg(['min', 'max'])"),
    answer("t[['fare', 'tip']].corr()"),
    answer("t.fare.corr(t.tip)"),
    answer("t.corr(numeric_only=True)"),
    answer("t[['fare', 'seats']].cov()"),
    answer("t.zone.mode()"),
    unordered("t.zone.unique()", "t.zone.drop_duplicates()"),
    unordered("t.zone.value_counts()"),
    unordered("t.value_counts('vendor')"),
    unordered("t.zone.value_counts(normalize=True)"),
    answer("np.histogram(t.tip.to_pandas(None), bins=5)[0]", "np.histogram(t.tip, bins=5)[0]"),
    answer("t.tip.histogram(bins=5)[0]", "np.histogram(t.tip, bins=5)[0]"),
    answer("t.histogram('tip', bins=[0, 1, 2, 9])[0]", "np.histogram(t.tip, bins=[0, 1, 2, 9])[0]"),
    answer("t.fare.isna().sum()"),
    refused("t.fare.skew()", "to_pandas"),
    answer("t.fare.sem()"),
    refused("t.fare.idxmax()", "nlargest"),
    answer("t.fare.nunique(dropna=True)"),
    answer("t.fare.between(10, 20, inclusive='both')"),
    answer("t.fare.rank(na_option='keep')"),
    answer("t.fare.is_unique"),
    answer("t.fare.hasnans"),
    answer("t.duplicated(['vendor', 'seats']).sum()"),
]

COLUMNS = [
    answer("t.assign(total=t.fare + t.tip)"),
    answer("t.assign(total=gl.col('fare') * 2, k=1)", "t.assign(total=t.fare * 2, k=1)"),
    answer("t.with_columns(total=t.fare + t.tip)", "t.assign(total=t.fare + t.tip)"),
    answer("t.select(['id', 'fare'])", "t[['id', 'fare']]"),
    answer("t.select('id', 'fare')", "t[['id', 'fare']]"),
    answer("t.eval('fare + tip')"),
    answer("t.eval('total = fare + tip')"),
    answer("t.assign(total=lambda f: f.fare + f.tip)"),
    answer("t.drop(columns=['fare', 'tip'])"),
    answer("t.drop('fare', axis=1)"),
    answer("t.drop_duplicates('vendor', ignore_index=True).vendor.sum()"),
    answer("t.sort_values('id', ignore_index=True)"),
    refused("t.drop(3, axis=0)", "rows are left out by a condition"),
    refused("t.select(total=gl.col('fare') * 2)", r"t.assign\(total="),
    answer("t.rename(columns={'fare': 'price'})"),
    answer("t.add_prefix('a_')"),
    answer("t.add_suffix('_b')"),
    answer("t.astype({'seats': 'float64'})"),
    answer("t.seats.astype('float32')"),
    answer("t.cast({'seats': 'float64'})", "t.astype({'seats': 'float64'})"),
    answer("t.fillna({'fare': 0.0})"),
    answer("t.fare.fillna(0)"),
    answer("t.dropna()"),
    answer("t.dropna(subset=['fare'])"),
    answer("t.fare.dropna()"),
    unordered("t.drop_duplicates()"),
    unordered("t.drop_duplicates(subset=['vendor', 'seats'])"),
    answer("t.replace({'zone': {'zone-1': 'one'}})"),
    answer("t.zone.replace({'zone-1': 'one'})"),
    answer("t.zone.replace('zone-1', 'one')"),
    answer("t.vendor.map({1: 'a', 2: 'b'})"),
    answer("t.fare.clip(10, 30)"),
    answer("t.fare.round(1)"),
    answer("t[['fare', 'tip']].round(1)"),
    answer("t[['fare', 'tip']].clip(0, 9)"),
    answer("t[['fare', 'tip']].abs()"),
    answer("t.fare.abs()"),
    answer("t.fare.where(t.card, 0)"),
    answer("t.fare.mask(t.card, 0)"),
    answer("np.log1p(t.fare)"),
    answer("np.sqrt(t.fare) + 1"),
    answer("np.where(t.card, 1, 0)", "pd.Series(np.where(t.card, 1, 0))"),
    answer(
        "gl.cut(t.fare, [0, 10, 30, 90], labels=['low', 'mid', 'high'])",
        "pd.cut(t.fare, [0, 10, 30, 90], labels=['low', 'mid', 'high']).astype('str')",
    ),
    answer("gl.cut(t.fare, [0, 10, 30], labels=False)", "pd.cut(t.fare, [0, 10, 30], labels=False)"),
    answer("gl.when(t.fare > 30).then('dear').otherwise('cheap')", "pd.Series(np.where(t.fare > 30, 'dear', 'cheap'))"),
    answer("t.fare.isin([10.0, 20.0])"),
    answer("t.fare.add(t.tip).mul(2)"),
    answer("t.fare.gt(30) & t.card.eq(True)"),
    answer("t.pipe(len)"),
    answer("len(t.copy())"),
    answer("t.reset_index(drop=True)"),
    answer("t.reset_index()[['index', 'fare']]"),
    refused("pd.cut(t.fare, [0, 10, 30])", r"gl\.cut"),
    refused("t.fare.apply(lambda x: x * 2)", "map_parts"),
    refused("t.apply(lambda row: row.fare, axis=1)", "map_parts"),
    refused("t.applymap(str)", "map_parts"),
    refused("t.map(str)", "map_parts"),
    refused("t.explode('zone')", "map_parts"),
    refused("t.set_index('id')", "sort_values|shuffle"),
    refused("t.insert(0, 'y', 1)", "assign"),
    refused("t.fare.astype('nonsense')", "nonsense"),
    refused("t.zone + t.fare", "cannot be computed"),
]

TEXT_AND_TIME = [
    answer("t.zone.str.contains('-1', regex=False)"),
    answer("t[t.zone.str.startswith('zone-1')]"),
    answer("t.zone.str.upper()"),
    answer("t.zone.str.len()"),
    answer("t.zone.str.split('-').str[1]"),
    answer("t.zone.str.extract(r'(\\d+)', expand=False)", "t.zone.str.extract(r'(\\d+)', expand=False)"),
    answer("t.zone.str.slice(0, 3)"),
    answer("t.zone.str[:3]"),
    answer("t.zone.str.replace('zone', 'z')"),
    answer("t.zone.str.strip('z')"),
    answer("t.zone.str.title()"),
    answer("t.zone.str.zfill(9)"),
    answer("t.zone.str.cat(t.vendor.astype('str'), sep='/')"),
    answer("t.zone + '!'"),
    answer("t.pickup.dt.hour"),
    answer("t.pickup.dt.dayofweek"),
    answer("t.pickup.dt.floor('D')"),
    answer("t.pickup.dt.floor('h')"),
    answer("t.pickup.dt.floor('MS')", "t.pickup.dt.to_period('M').dt.start_time.astype('datetime64[us]')"),
    answer("t.pickup.dt.floor('W')", "t.pickup.dt.to_period('W').dt.start_time.astype('datetime64[us]')"),
    answer("t.pickup.dt.ceil('h')"),
    answer("t.pickup.dt.strftime('%Y-%m')"),
    answer("t.pickup.dt.normalize()"),
    answer("t.pickup.dt.month_name()"),
    answer("t.pickup.dt.day_name()"),
    answer("(t.dropoff - t.pickup).dt.total_seconds()"),
    answer("t.pickup.dt.is_month_start"),
    answer("t.pickup + pd.Timedelta('1h')"),
    answer("t.pickup.dt.isocalendar().week", "t.pickup.dt.isocalendar().week.astype('int64')"),
    refused("t.pickup.dt.date", r"floor\('D'\)"),
    refused("t.pickup.dt.to_period('M')", r"floor\('MS'\)|floor"),
    refused("t.pickup.dt.tz_localize('UTC')", "astype"),
    refused("t.zone.str.findall('z')", "there are|map_parts"),
]

GROUPS = [
    unordered("t.groupby('vendor')['fare'].mean()"),
    unordered("t.groupby('vendor').fare.mean()"),
    unordered("t.groupby(['vendor', 'zone'])['fare'].sum()"),
    unordered("t.groupby('vendor')[['fare', 'tip']].mean()"),
    unordered("t.groupby('vendor').mean(numeric_only=True)"),
    unordered("t.groupby('vendor').agg({'fare': 'mean', 'tip': 'max'})"),
    unordered("t.groupby('vendor').agg(m=('fare', 'mean'), n=('id', 'size'))"),
    unordered("t.groupby('vendor')['fare'].agg(['min', 'max'])"),
    unordered(
        "t.groupby('vendor').agg({'fare': ['min', 'max']})",
        "t.groupby('vendor').agg(fare_min=('fare', 'min'), fare_max=('fare', 'max'))",
    ),
    unordered("t.groupby('vendor').size()", "t.groupby('vendor').size().reset_index(name='size')"),
    unordered("t.groupby('vendor').count()"),
    unordered("t.groupby('vendor').agg({'fare': np.sum, 'tip': np.max})"),
    unordered("t.groupby('vendor').agg(n=pd.NamedAgg('zone', 'count'))"),
    unordered("t.groupby('vendor', observed=True)['tip'].sum()"),
    unordered(
        "t.assign(kind=t.vendor.astype('category')).filter(gl.col('vendor') > 1).groupby('kind', observed=True)['tip'].sum()",
        "t[t.vendor > 1].assign(kind=t.vendor.astype('str')).groupby('kind')['tip'].sum()",
    ),
    unordered("t.groupby('vendor')['fare'].median()"),
    unordered("t.groupby('vendor')['fare'].quantile(0.9)"),
    unordered("t.groupby('vendor')['zone'].nunique()"),
    unordered("t.groupby('vendor')['fare'].std()"),
    unordered(
        "t.groupby('vendor').first()[['id', 'fare']]",
        "t.groupby('vendor').first()[['id', 'fare']].reset_index(drop=True)",
    ),
    answer("t.groupby('vendor', sort=True)['tip'].sum()"),
    unordered("t.groupby('vendor', as_index=False)['tip'].sum()"),
    unordered("t.groupby('zone', dropna=False)['tip'].sum()"),
    unordered("t.groupby(t.pickup.dt.month)['tip'].sum()"),
    unordered("t.groupby(t.fare > 30)['tip'].sum()"),
    unordered("t.groupby([t.vendor, t.pickup.dt.hour])['tip'].max()"),
    unordered(
        "t.groupby(gl.col('pickup').dt.floor('D'))['tip'].sum()", "t.groupby(t.pickup.dt.floor('D'))['tip'].sum()"
    ),
    unordered(
        "t.groupby(pd.Grouper(key='pickup', freq='D'))['tip'].max()", "t.groupby(t.pickup.dt.floor('D'))['tip'].max()"
    ),
    unordered("t.groupby(pd.Grouper(key='pickup', freq='7D'))['tip'].max()"),
    answer("t.resample('5D', on='pickup')['tip'].max()"),
    answer("t.resample('W', on='pickup')['tip'].sum()"),
    answer("t.resample('MS', on='pickup')['fare'].mean()"),
    answer("t.resample('W', on='pickup')['tip'].max()"),
    answer("t.resample('MS', on='pickup').size()", "t.resample('MS', on='pickup').size().reset_index(name='size')"),
    unordered("t.group_by('vendor').agg(m=('fare', 'mean'))", "t.groupby('vendor').agg(m=('fare', 'mean'))"),
    unordered(
        "t.groupby('vendor').agg('max')[['id', 'fare']]",
        "t.groupby('vendor')[['id', 'fare']].max().reset_index(drop=True)",
    ),
    unordered("t.groupby('vendor')['fare'].value_counts()"),
    answer("t.groupby('vendor').ngroups"),
    answer("t.groupby('vendor').get_group(2)"),
    answer("t.groupby('vendor').head(2)"),
    answer("t.groupby('vendor').tail(2)"),
    answer("t.groupby('vendor').nth(1)"),
    unordered("t.groupby('vendor')[['fare']].describe()", "t.groupby('vendor')['fare'].describe()"),
    refused("t.groupby('vendor').apply(len)", "agg"),
    refused("t.groupby('vendor')['fare'].apply(len)", "agg"),
    refused("list(t.groupby('vendor'))", "agg"),
    refused("t.groupby('vendor').agg({'fare': lambda x: x.max()})", "map_parts"),
]

WINDOWS = [
    answer("t.fare.cumsum()"),
    answer("t.tip.cumsum()"),
    answer("t.seats.cummax()"),
    answer("t.fare.cummin()"),
    answer("(t.seats / 3).cumprod()"),
    answer("t[['fare', 'tip']].cumsum()"),
    answer("t.fare.shift(1)"),
    answer("t.fare.shift(-2)"),
    answer("t.zone.shift(1)"),
    answer("t.fare.diff()"),
    answer("t.pickup.diff()"),
    answer("t.seats.pct_change()"),
    answer("t.fare.rank()"),
    answer("t.seats.rank(method='min')"),
    answer("t.seats.rank(method='dense', ascending=False)"),
    answer("t.seats.rank(pct=True)"),
    answer("t.tip.rolling(5).mean()"),
    answer("t.fare.rolling(5, min_periods=1).sum()"),
    answer("t.tip.rolling(7).max()"),
    answer("t.tip.expanding().mean()"),
    answer("t.fare.ffill()"),
    answer("t.fare.bfill()"),
    answer("t[['fare', 'tip']].ffill()"),
    answer("t.assign(run=t.tip.cumsum())"),
    answer(
        "t.assign(run=gl.col('tip').cumsum(), before=gl.col('id').shift(1))",
        "t.assign(run=t.tip.cumsum(), before=t.id.shift(1))",
    ),
    answer("t[t.tip.diff() > 1]"),
    answer("(t.fare - t.fare.shift(1)).abs().max()"),
    answer("t.groupby('vendor')['tip'].cumsum()"),
    answer("t.groupby(['vendor', 'seats'])['fare'].cummax()"),
    answer("t.groupby('vendor')['fare'].shift(1)"),
    answer("t.groupby('vendor')['tip'].diff()"),
    answer("t.groupby('vendor')['tip'].rank()"),
    answer("t.groupby('vendor').cumcount()"),
    answer("t.groupby('vendor').ngroup()"),
    answer("t.groupby('vendor')['fare'].transform('mean')"),
    answer("t.groupby('zone')['tip'].transform('sum')"),
    answer("t.assign(share=t.tip / t.groupby('vendor')['tip'].transform('sum'))"),
    answer(
        "t.groupby('vendor')['tip'].rolling(3).mean()",
        "t.groupby('vendor')['tip'].transform(lambda x: x.rolling(3).mean())",
    ),
    answer("t.groupby('vendor')['fare'].ffill()"),
    answer("t.assign(n=gl.col('tip').cumsum().over('vendor'))", "t.assign(n=t.groupby('vendor').tip.cumsum())"),
    refused("t.tip.ewm(span=3).mean()", "to_pandas"),
    refused("t.fare.interpolate()", "to_pandas"),
    refused("t.groupby('vendor')['fare'].transform(lambda x: x - x.mean())", "transform\\('mean'\\)|map_parts"),
]

RESHAPING = [
    answer("t.pivot_table(values='tip', index='vendor', columns='seats', aggfunc='sum')"),
    answer("t.pivot_table(values='fare', index='zone', columns='vendor')"),
    answer("t.pivot_table('tip', ['vendor', 'card'], 'seats', 'max')"),
    answer("t.pivot_table(index='vendor', columns='seats', values='id', aggfunc='count', fill_value=0)"),
    answer("gl.crosstab(t.vendor, t.seats)", "pd.crosstab(t.vendor, t.seats)"),
    answer("t.crosstab('vendor', 'zone')", "pd.crosstab(t.vendor, t.zone)"),
    answer("t.melt(id_vars='id', value_vars=['fare', 'tip'])"),
    answer("t.melt(['id', 'vendor'], ['fare', 'tip'], var_name='what', value_name='much')"),
    refused("pd.crosstab(t.vendor, t.seats)", "crosstab"),
    refused("pd.melt(t, 'id')", "melt"),
    refused("t.pivot(index='id', columns='vendor', values='fare')", "pivot_table"),
    refused("t.unstack()", "pivot_table"),
    refused("t.stack()", "melt"),
    refused("pd.get_dummies(t)", "assign|to_pandas"),
]

TOGETHER = [
    unordered("t.merge(z, on='zone')"),
    unordered("t.merge(z, on='zone', how='left')"),
    unordered("t.merge(z.rename(columns={'zone': 'place'}), left_on='zone', right_on='place')"),
    unordered("t.merge(zones, on='zone')"),
    unordered("t.join(z, on='zone')", "t.merge(z, on='zone')"),
    unordered(
        "t.merge(z, on='zone', how='outer', indicator=True)",
        "t.merge(z, on='zone', how='outer', indicator=True).astype({'_merge': 'str'})",
    ),
    unordered("t[['vendor']].drop_duplicates().merge(z[['n']], how='cross')"),
    unordered("gl.merge(t, z, on='zone')", "pd.merge(t, z, on='zone')"),
    answer("t.merge_asof(marks, on='pickup')", "pd.merge_asof(t, marks, on='pickup')"),
    answer("gl.merge_asof(t, marks, on='pickup', by='vendor')", "pd.merge_asof(t, marks, on='pickup', by='vendor')"),
    answer(
        "t.merge_asof(marks, on='pickup', direction='forward')",
        "pd.merge_asof(t, marks, on='pickup', direction='forward')",
    ),
    unordered("gl.concat([t, t])", "pd.concat([t, t])"),
    answer("t.equals(t)"),
    refused("pd.merge(t, z, on='zone')", r"merge"),
    refused("pd.concat([t, t])", r"gl\.concat"),
    refused("pd.merge_asof(t, z, on='pickup')", r"merge_asof"),
    refused("t.append(t)", "concat"),
    refused("t.update(t)", "join"),
    refused("t + t", "assign|equals"),
]

TYPED_OTHERWISE = [
    refused("t.shufle", "did you mean 'shuffle'"),
    refused("t.shuffle_asyn", "did you mean 'shuffle_async'"),
    refused("t.sort_values('fare', na_positon='first')", "mean 'na_position'"),
    answer("len(t.sample(2, random_state=1))", "2"),
    answer("t.fare.mean(skipna=True)", "t.fare.mean()"),
    refused(
        "t.groupby('zone')['fare'].sum().sort_values(ascending=False)", r"write sort_values\('fare', ascending=False\)"
    ),
    refused("t.groupby('zone')['fare'].sum().nlargest(3)", r"columns zone and fare; write nlargest\(3, 'fare'\)"),
    refused("t.zone.value_counts()['zone-1']", r"as t\[t\['zone'\] == 'zone-1'\]"),
    refused("t.groupby()", r"id, vendor, zone, fare, tip, seats and others; write groupby\('id'\)"),
    refused("t.resample('D')", r"write resample\(rule, on=...\)"),
    refused("t.join()", r"write join\(right, ...\)"),
    refused("t.lazy()", "wait until rows are needed"),
    refused("t.filter(t.fare > 1, t.tip > 1)", r"t.filter\(\(t.x > 1\) & \(t.y < 5\)\)"),
    refused("gl.col('fare').alias('b')", r"^AttributeError: an expression .*t.assign\(y="),
    refused("t.fare.alias('b')", r"t.assign\(y="),
    refused("gl.qcut(t.fare, 4)", r"gl.cut\("),
    refused("gl.to_datetime(t.zone)", r"t.x.astype\('datetime64\[us\]'\)"),
    refused("gl.Cluster(n=2, memory_limit='32MiB')", r"config=gl.GcylonConfig\(gpu_memory_limit="),
    refused("t.groupby('vendor').describe()", r"^AttributeError: a group-by .*\['x'\].describe"),
    refused("t.groupby('vendor')['fare'].nlargest(2)", r"groupby\(keys\).head\(3\)"),
    refused("t.groupby('vendor')['fare'].prod()", "map_parts"),
    refused("t.groupby('vendor')['fare'].sem()", r"assign\(sem="),
    refused("t.groupby('vendor')['fare'].idxmax()", r"head\(1\)"),
    refused("t.fares", "did you mean 'fare'"),
    refused("t.far", "did you mean 'fare'"),
    refused("t.Fare", "did you mean 'fare'"),
    refused("t['fares']", "Did you mean 'fare'"),
    refused("t.plan_shufle", "did you mean 'plan_shuffle'"),
    refused("t.fare.argmax()", "nlargest"),
    refused("t.fare.rolling(5, center=True)", r"^TypeError: rolling\(\) .*shift\(-2\)"),
    refused("gl.col('fare').rolling(5, center=True)", r"^TypeError: rolling\(\) .*shift\(-2\)"),
    refused("t.fare.between(1, 2, inclusive='left')", r"^TypeError: between\(\) .*\(t.x > 1\) & \(t.x < 5\)"),
    refused("t.fare.rank(na_option='top')", "missing values have no place"),
    refused("t.fare.nunique(dropna=False)", "missing values are not counted"),
    refused("t.zone.str.split('-', expand=True)", r"split\('-'\)\[0\]"),
    refused("t.pivot_table(index='zone', margins=True)", "groupby"),
    refused("t.fare.histogram(range=(0, 9))", "give edges as bins="),
    refused("t.groupby('vendor', observed=False)", "give observed=True"),
    refused("t.zone.replace('a', 'b', regex=True)", "replaces pieces of texts"),
    refused("t.mean(axis=1)", "'axis': verbs go down columns"),
    refused("t.filter(items=['id'])", r"select\(columns\) chooses columns"),
    refused("t.groupby('vendor').agg('tops')", "'tops' does not say of which columns"),
    refused("t.assign(y=pd.Series([1, 2]))", r"a Series of 2 cannot .*lab.from_pandas\(frame\)"),
    refused("t.assign(y=t)", "a Table of .* cannot be fitted to the rows"),
    refused("t.fillna(pd.Series([1, 2]))", "a Series of 2 cannot be fitted to the rows"),
    refused("t[pd.Series([True] * 9)]", "no rows in brackets"),
    refused("t.filter(pd.Series([True] * 9))", "Expected a condition, got a Series of 9"),
    refused("t.drop_duplicates('id', keep=None)", "keep=None is invalid. Expected 'first', 'last'"),
    refused("t.join(t.rename({name: name + '_' for name in t.columns}))", "No column stands on both sides"),
    refused("t[t.filter(t.id > 0).id > 1]", "column id is of another table"),
    refused("t.sort", r"use sort_values\(by\)"),
]

HAND_OVER = [
    answer("pa.table(t).to_pandas()", "t"),
    answer("pd.DataFrame.from_arrow(t)", "t"),
    answer("pl.DataFrame(t).height", "len(t)"),
    answer("duckdb.execute('select sum(tip) as s from t').fetchall()[0][0]", "t.tip.sum()"),
    answer("t.to_arrow().num_rows", "len(t)"),
    answer("sum(batch.num_rows for batch in t.to_batches())", "len(t)"),
    answer("len(px.histogram(t, x='tip').data)", "1"),
    answer("t.tip.to_numpy()"),
    answer("t.tip.tolist()"),
    answer("list(t.tip)"),
    answer("np.asarray(t.tip)"),
    answer("t.tip.values"),
    answer("t[['tip', 'seats']].to_numpy()"),
    answer("t.to_polars().height", "len(t)"),
    answer("t.to_dict('list')['tip']"),
    answer("len(t.to_csv().splitlines())", "len(t) + 1"),
    answer("len(t.to_parquet(folder + '/trips'))", "2"),
    answer("nw.from_native(t.to_arrow()).shape[0]", "len(t)"),
    refused("np.asarray(t)", "to_pandas"),
    refused("pd.DataFrame(t)", r"to_pandas"),
    refused("t.to_sql('t', None)", "to_pandas"),
    refused("t.to_excel('t.xlsx')", "to_pandas"),
    refused("t.sql('select 1')", "duckdb|query"),
]

FILES = [
    answer("len(t.write_csv(folder + '/csv', index=False, sep=';'))", "2"),
    answer("len(t.to_csv(folder + '/to', sep=';'))", "2"),
    answer("len(t.write_parquet(folder + '/pq', index=False))", "2"),
    answer("len(t.write_json(folder + '/json'))", "2"),
    answer("lab.read_csv(folder + '/csv', sep=';', usecols=['id', 'fare'])", "t[['id', 'fare']]"),
    answer("lab.read_csv(folder + '/to', delimiter=';').tip.sum()", "t.tip.sum()"),
    answer("lab.read_json(folder + '/json', lines=True)[['id', 'tip']]", "t[['id', 'tip']]"),
    answer("lab.read_parquet(folder + '/pq', usecols=['tip'])", "t[['tip']]"),
    refused("lab.read_csv('x.csv', nrows=5)", r"t.head\(n\)"),
    refused("lab.read_csv('x.csv', chunksize=5)", "to_batches"),
    refused("lab.read_csv('x.csv', index_col=0)", "no index"),
    refused("lab.read_csv('x.csv', na_values='?')", "dtype={'x': 'str'}"),
    refused("lab.read_csv()", r"write read_csv\(paths, ...\)"),
    refused("lab.read_csv('x.csv', parse_date='t')", "did you mean 'parse_dates'"),
    refused("t.write_csv(folder + '/one', single_file=True)", "to_pandas"),
    refused("t.write_csv(folder + '/one', index=True)", "give index=False"),
]

HABITS = [
    *BRACKETS,
    *LOOKING,
    *REDUCING,
    *COLUMNS,
    *TEXT_AND_TIME,
    *GROUPS,
    *WINDOWS,
    *RESHAPING,
    *TOGETHER,
    *TYPED_OTHERWISE,
    *HAND_OVER,
    *FILES,
]
