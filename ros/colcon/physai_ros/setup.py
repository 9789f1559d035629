"""The colcon package around `physai.ros`, which pip installs: `pip install physai-sdk[ros]`."""

from glob import glob

from setuptools import setup

PACKAGE = "physai_ros"

setup(
    name=PACKAGE,
    version="0.1.0",
    packages=[PACKAGE],
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{PACKAGE}"]),
        (f"share/{PACKAGE}", ["package.xml"]),
        *((f"share/{PACKAGE}/{folder}", glob(f"{folder}/*")) for folder in ("launch", "config", "rviz")),
    ],
    install_requires=["setuptools"],
    zip_safe=True,
    maintainer="physai",
    maintainer_email="maintainers@physai.invalid",
    description="Runs the robot's active physai policy as a managed node",
    license="Apache-2.0",
    entry_points={
        "console_scripts": [f"policy_node = {PACKAGE}.programs:policy_node", f"physai = {PACKAGE}.programs:physai"]
    },
)
