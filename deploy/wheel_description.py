"""Makes the description that an index shows of the Python package: its README, with addresses in place of files."""
import posixpath
import re

README = "client/python/README.md"
LINK_TO_FILE = re.compile(r"(?<=\]\()(?![a-z]+:|#)[^)\s]+(?=\))")


def dynamic_metadata(_settings, project):
    """Returns the description; scikit-build-core calls it in the root of the sources. The addresses begin with Source
    of the project's addresses."""
    def address(link):
        return project["urls"]["Source"] + posixpath.normpath(posixpath.join(posixpath.dirname(README), link[0]))

    with open(README, encoding="utf-8") as file:
        return {"readme": {"content-type": "text/markdown", "text": LINK_TO_FILE.sub(address, file.read())}}
