"""`survey`: how the data of all sites fit a recipe, before a run."""

from __future__ import annotations

import click

from tff_re.cli import options
from tff_re.cli.display import say
from tff_re.errors import UserError
from tff_re.runtime import is_of_sites


@click.command(
    epilog=options.example(
        "python -m tff_re.run survey flcmc-shipped-fedpap --runtime sites:a=a/site.sock,b=b/site.sock\n"
        "python -m tff_re.run survey recipe.toml --runtime flower:relay.sock --sites a,b --epsilon 1 --out a.html"
    )
)
@click.argument("recipe")
@options.overrides
@options.seed
@options.runtime
@click.option("--sites", metavar="A,B,C", help="The sites to ask, for the runtimes sites and flower.")
@click.option(
    "--least-count",
    type=click.IntRange(min=1),
    help="Hide smaller counts of a site, which may hide larger ones, too [default: 5].",
)
@click.option(
    "--epsilon",
    type=click.FloatRange(min=0.001, max=1e6),
    help="Ask for counts with noise of this ε at each site, and hide none.",
)
@click.option(
    "--masks",
    is_flag=True,
    help="Open counts only as totals over the sites, also if the recipe does not mask sums (aggregation.secure).",
)
@click.option("--labels", metavar="A,B,C", help="Labels to count, if the recipe does not list them.")
@options.path_option("--out", help="Also write the page, to FILE.html or FILE.json.")
@options.stage_seconds
@options.retry_seconds(60.0)
def survey(
    recipe, overrides, seed, runtime, sites, least_count, epsilon, masks, labels, out, stage_seconds, retry_seconds
):
    """Ask all sites how their data fit RECIPE before a run: texts, clients, labels, lengths, repeated texts and unknown
    tokens, as sums of counts that each site protects before they leave. No text leaves a site."""
    from tff_re import api
    from tff_re.cli.site_check import print_section, require_page, write_page
    from tff_re.pages.survey_page import survey_page, survey_sections
    from tff_re.sites.asking import Patience
    from tff_re.sites.survey import survey_sites
    from tff_re.sites.survey_options import LEAST_COUNT
    from tff_re.sites.transport import engine_of

    if not is_of_sites(runtime):
        raise UserError("survey asks sites: give --runtime sites:… or flower:…")
    if least_count is not None and epsilon is not None:
        raise UserError("--least-count hides counts and --epsilon adds noise to them; give one of them")
    require_page(out)
    result = survey_sites(
        api.load_recipe(recipe, *overrides, seed=seed),
        engine_of(runtime, options.names(sites)),
        least_count=(least_count or LEAST_COUNT) if epsilon is None else None,
        epsilon=epsilon,
        labels=options.names(labels),
        masked=masks,
        patience=Patience(stage_seconds, retry_seconds),
        on_line=say,
    )
    for section in survey_sections(result):
        print_section(section)
    if out is not None:
        write_page(out, result, survey_page)
