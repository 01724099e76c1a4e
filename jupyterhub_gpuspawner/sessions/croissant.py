"""The description of an export as Croissant 1.0, the metadata format of MLCommons for data sets. Pure.

Source: docs.mlcommons.org/croissant/docs/croissant-spec-1.0.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.sessions.columns import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
_TYPES = {"string": "sc:Text", "integer": "sc:Integer", "number": "sc:Float", "boolean": "sc:Boolean"}


def croissant(about: Mapping[str, Any], *, media_type: str, title: str, description: str, made: str) -> dict[str, Any]:
    """The JSON-LD document; ``about`` has the table's ``name``, ``bytes`` and ``sha256``."""
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": "gpuspawner-sessions",
        "alternateName": title,
        "description": description,
        "datePublished": made,
        "version": "1.0.0",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": "table",
                "name": "table",
                "contentUrl": about["name"],
                "contentSize": f"{about['bytes']} B",
                "encodingFormat": media_type,
                "sha256": about["sha256"],
            }
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "sessions",
                "name": "sessions",
                "field": [
                    {
                        "@type": "cr:Field",
                        "@id": f"sessions/{each.name}",
                        "name": each.name,
                        "description": each.meaning,
                        "dataType": _TYPES[each.kind],
                        "source": {"fileObject": {"@id": "table"}, "extract": {"column": each.name}},
                    }
                    for each in COLUMNS
                ],
            }
        ],
    }
