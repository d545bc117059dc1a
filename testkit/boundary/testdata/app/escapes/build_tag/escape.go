package buildtag
