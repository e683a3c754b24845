import click
@click.command()
def bench(): pass
